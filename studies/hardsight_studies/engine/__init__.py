"""Reading studies, running them, and making tables and pages of what they found."""
