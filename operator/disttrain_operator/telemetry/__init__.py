"""What the operator tells of itself: metrics, whether it lives, whether it is ready."""
