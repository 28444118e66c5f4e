"""`swiftsure bench` beside other load tools on one endpoint whose moments are known: what each reports, and what was written when."""
