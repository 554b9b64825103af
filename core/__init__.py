"""The model that control plane and dispatcher share. The modules at the top of this room do no I/O."""
