"""AMC-Loss (Choi et al. 2020): features on the sphere, and what the network looks at."""
