"""Policy files: kube-batch's format, its switches and arguments, and kube-scheduler's older `kind: Policy`."""
