"""The proxy process: bytes in, a decision, bytes out, and every token written down."""
