"""Serving: the HTTP service and its page (the extra `serve`)."""
