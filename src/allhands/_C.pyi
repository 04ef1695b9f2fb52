"""
The native core of allhands. Private: use the names that allhands exports.
"""
