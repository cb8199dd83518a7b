"""Other domains: self-training for adaptation without labels, leave-one-domain-out generalization."""
