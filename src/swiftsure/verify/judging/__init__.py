"""From what was observed and a contract to findings, and from findings to one verdict. Pure: nothing here runs anything."""
