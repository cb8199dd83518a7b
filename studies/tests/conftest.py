"""The tests of the studies."""

# A script and its parts, run by hand.
collect_ignore = ["carried_over.py", "carried"]
