"""What a broker answers, one module per conversation."""
