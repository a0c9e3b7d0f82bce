// Package subscription tells clients of a process about jobs and campaigns, with few
// queries.
//
// [Announcements] is the channel in Redis for jobs that are final or have news. [Jobs]
// tells the clients that wait for them. An announcement can be lost, so Jobs also reads
// its jobs at an interval, all in one query. [Campaigns] reads all followed campaigns in
// one query per interval. This package never writes to Postgres.
package subscription
