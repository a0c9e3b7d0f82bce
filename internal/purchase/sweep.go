package purchase

// JobIsSettled is a condition on a job j: no payment or refund of its purchase is open.
// It is a subquery and no join, so that it is one look-up for each job that is found.
const JobIsSettled = `coalesce((SELECT p.state FROM purchases p WHERE p.job_id = j.id)
	NOT IN ('pending', 'awaiting_action', 'refunding'), true)`
