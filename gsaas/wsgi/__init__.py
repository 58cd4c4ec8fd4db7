"""The API as a WSGI server of the operator's choice runs it."""
