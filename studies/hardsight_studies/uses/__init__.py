"""What hardness is used for, each use measured beside an ordinary rival."""
