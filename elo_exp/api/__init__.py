"""Questions to models behind an API: how they are sent, who pays for which, and that nothing is
paid twice."""
