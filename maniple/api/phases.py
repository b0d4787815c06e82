"""Phases of pods and jobs."""

FINISHED = ("Succeeded", "Failed")  # of a pod and of an ElasticJob: nothing runs any more, and nothing will
