"""What actions and plugins work with: Session, Statement, Policy, Plan and the hooks that join them."""
