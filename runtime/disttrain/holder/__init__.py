"""What a holder of a part of a job's state does with it, whatever its role.

It keeps values, takes pictures of them, writes its part of a checkpoint and reads it back. Who may
change values, and how, is a strategy's affair.
"""
