"""Give waiting jobs their slots, from what each backend offers now."""
