"""How the job is doing, for people and tools: what was heard lately, how far it is, what limits it.

Pure: computed from the state and the members' reports; nothing here changes either.
"""
