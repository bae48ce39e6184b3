"""The remoting protocol, without I/O."""
