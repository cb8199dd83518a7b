"""Studies of texts: noise planted among documents, and people's ratings of texts."""
