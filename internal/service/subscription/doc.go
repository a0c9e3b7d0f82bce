// Package subscription tells many clients of one process what happens to jobs and campaigns,
// with few queries: clients that wait for a job, and streams that follow a campaign.
//
// [Announcements] is the channel in Redis that says which jobs are final or have
// something new to say; [Jobs] tells the clients that wait for them or follow them. An announcement can be lost, so Jobs also reads the
// jobs at an interval, all in one query. [Campaigns] reads all campaigns that clients
// follow in one query per interval, and passes on what has changed. This package never
// writes to Postgres.
package subscription
