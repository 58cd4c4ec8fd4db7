"""Results as people like to look at them: one HTML file that needs nothing else, and tables for programs."""
