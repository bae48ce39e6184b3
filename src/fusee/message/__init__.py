"""What a message is, byte for byte."""
