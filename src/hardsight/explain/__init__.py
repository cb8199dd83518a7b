"""What the network looks at, and how its features lie: class activation maps, cluster quality, embedding views."""
