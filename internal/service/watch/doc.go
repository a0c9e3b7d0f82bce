// Package watch tells many at once what happens to jobs and campaigns, for the
// price of a few: clients that wait for a job, and streams that follow a campaign.
//
// [Announcements] say in Redis that jobs are final; [Jobs] wakes those of this
// process who wait for one. An announcement may be lost, so jobs that are waited
// for are also read at an interval, all in one query. [Campaigns] reads the
// campaigns that are followed at an interval, all in one query too, and passes on
// what has changed.
package watch
