"""What `trunkline doctor` looks at: what this machine has and lacks."""
