"""Angular Visual Hardness (Chen et al. 2020), sections 3 and 4: agreement with people, training dynamics, pictures."""
