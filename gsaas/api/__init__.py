"""The REST API: HTTP and nothing else. `routes` is where to begin reading."""
