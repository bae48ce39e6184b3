"""What programs that use the queue call."""
