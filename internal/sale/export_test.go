package sale

// ReadsOfJobs are the statements that read the jobs $1 uuid[] of the campaigns $2 uuid[].
var ReadsOfJobs = map[string]string{"purchases": queuedSQL, "cancellations": wantedSQL}
