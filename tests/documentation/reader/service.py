print("served")
