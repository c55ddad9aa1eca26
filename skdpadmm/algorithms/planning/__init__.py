"""What decides a plan from public facts: defaults, ranges of knobs, noise of messages."""
