"""Names of the views that a task shows."""

POLICY, CRITIC, PREVIOUS_ACTION = "policy", "critic", "previous_action"
