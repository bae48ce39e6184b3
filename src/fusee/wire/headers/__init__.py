"""Request and response headers as data, one module per conversation."""
