package main

import (
	"context"
	"strings"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/campaign"
)

// scenario is one row of the table. run prepares what it needs, warms up, measures for
// about the given time, checks the results and cleans up.
type scenario struct {
	name string
	run  func(ctx context.Context, s *setup, measured time.Duration) (result, error)
}

// scenarios are in the order of a round. Those that are compared follow each other.
var scenarios = []scenario{
	{"documents-rr", documents{isolation: "REPEATABLE READ"}.run},
	{"documents-rc", documents{isolation: "READ COMMITTED"}.run},
	{"rows-waited-for", documents{isolation: "READ COMMITTED", locked: " ", hot: true}.run},
	{"rows-nowait", documents{isolation: "READ COMMITTED", locked: "NOWAIT", hot: true}.run},
	{"rows-skipped", documents{isolation: "READ COMMITTED", hot: true}.run},
	{"asynq-empty", runEmptyTasks},
	{"floor", runFloor},
	{"set-based", runSetBased},
	{"guard", runGuard},
	{"triprize-http", crowdedSale{}.run},
	{"triprize-http-sentinel", crowdedSale{redis: devstack.RedisSentinel}.run},
	{"triprize-http-cluster", crowdedSale{redis: devstack.RedisCluster}.run},
	{"triprize-http-standby", crowdedSale{postgres: devstack.PostgresStandby, env: []string{"TRIPRIZE_POSTGRES_REQUIRE_SYNC_STANDBY=true"}}.run},
	{"silent", crowdedSale{env: []string{"TRIPRIZE_LOG_LEVEL=error"}}.run},
	{"traced", crowdedSale{traced: true}.run},
	{"random", crowdedSale{paid: randomPair, each: 2}.run},
	{"adjacent", crowdedSale{paid: adjacentPair, each: 2}.run},
	{"first-minute", runFirstMinute},
	{"webhooks", runEventSale},
	{"idle-fleet", runIdleFleet},
	{"triprize-http-wallet", crowdedSale{offer: byWallet, first: true, payers: walletPayers}.run},
	{"wallet-beside-nothing", besideCards{}.run},
	{"wallet-beside-cards", besideCards{cardBuyers: enoughCardBuyers}.run},
	{"triprize-http-2workers", crowdedSale{workers: 2}.run},
	{"triprize-http-100campaigns", crowdedSale{offer: hundred}.run},
	{"2000-users", crowdedSale{buyers: 2000}.run},
	{"10000-users", crowdedSale{buyers: 10_000, every: 5 * time.Second, env: []string{"TRIPRIZE_API_MAX_CONNECTIONS=11000"}}.run},
	{"sold-out-storm", runStorm},
	{"idle-latency", crowdedSale{buyers: 1}.run},
	{"half-load", runHalfLoad},
	{"transfers-alone", walletCommands{wallets: 1000, alone: true}.run},
	{"transfers", walletCommands{wallets: 1000}.run},
	{"hot-wallet-alone", walletCommands{wallets: 1, alone: true}.run},
	{"hot-wallet", walletCommands{wallets: 1}.run},
	{"read-job", reads{}.run},
	{"read-campaign", reads{campaign: true}.run},
	{"replays", reads{replays: true}.run},
	{"1-job", grown(1, 0, 0).run},
	{"1M-jobs", grown(1_000_000, 0, 0).run},
	{"1-campaign", grown(0, 1, 0).run},
	{"1000-campaigns", grown(0, 1000, 0).run},
	{"1000-campaigns-on-sale", crowdedSale{offer: thousand}.run},
	{"256-wallets", grown(0, 0, growthPayers).run},
	{"100k-wallets", grown(0, 0, 100_000).run},
	{"draw-1275", runDraws},
	{"transition", drawStep{campaign.Active, beginDraw}.run},
	{"execution-lock", drawStep{campaign.Drawing, claimDraw}.run},
	{"lock", lockStep{devstack.RedisSingle}.run},
	{"lock-three", lockStep{devstack.RedisThree}.run},
	{"stranger/cancellations", disturbance{disturb: cancelOne(time.Second / 3)}.run},
	{"stranger/flooding-app", disturbance{disturb: cancelOne(0)}.run},
	{"stranger/anonymous", disturbance{disturb: readCampaign(false)}.run},
	{"stranger/reads", disturbance{disturb: readCampaign(true)}.run},
	{"stranger/releases", disturbance{disturb: releaseHolds}.run},
	{"stranger/large-bodies", disturbance{disturb: posting(
		`{"selection":{"positions":[0` + strings.Repeat(",0", 500_000) + `]},"payment":{"method":"external"}}`)}.run}, // 1 MB with many faults
	{"locked/campaign", disturbance{workers: 2, lasting: 80 * time.Second, disturb: orderLocked{each: 25}.run}.run},
	{"locked/1000-campaigns", disturbance{workers: 2, campaigns: 1000, lasting: 20 * time.Second, disturb: orderLocked{each: 100}.run}.run},
	{"locked/1000-wallets", disturbance{workers: 2, wallets: 1000, lasting: 20 * time.Second, disturb: orderLocked{each: 100, payers: 1000}.run}.run},
}

// claim is a ratio of two scenarios of one run, or a figure of one, with its target.
type claim struct {
	name   string
	target string
	over   string // the scenario above the line
	under  string // the one below it; empty: the claim is about one scenario
	of     string // what is compared; empty: the rate
}

// claims are the targets that the scenarios measure.
var claims = []claim{
	{"triprize-http / documents-rr", "at least 60", "triprize-http", "documents-rr", ""},
	{"triprize-http / documents-rc", "at least 25", "triprize-http", "documents-rc", ""},
	{"hot rows: NOWAIT / plain FOR UPDATE", "documents: 1.6", "rows-nowait", "rows-waited-for", ""},
	{"hot rows: SKIP LOCKED / plain FOR UPDATE", "documents: 2.5", "rows-skipped", "rows-waited-for", ""},
	{"wait for a campaign's row: average, ms", "below 200", "triprize-http", "", rowWait},
	{"the same with two workers", "below 200", "triprize-http-2workers", "", rowWait},
	{"triprize-http / asynq-empty", "at least 1.3", "triprize-http", "asynq-empty", ""},
	{"triprize-http / set-based", "at least 0.4", "triprize-http", "set-based", ""},
	{"cpu of a purchase / set-based", "at most 3", "triprize-http", "set-based", cpuOfEach},
	{"cpu of a purchase / floor", "no target", "triprize-http", "floor", cpuOfEach},
	{"share of checks, keys and limits", "at most 0.15", "triprize-http", "guard", ""},
	{"purchases per second of cpu, Sentinel / http", "at least 0.9", "triprize-http-sentinel", "triprize-http", perSecondOfCPU},
	{"purchases per second of cpu, Cluster / http", "at least 0.85", "triprize-http-cluster", "triprize-http", perSecondOfCPU},
	{"purchases per second of cpu, standby / http", "at least 0.7", "triprize-http-standby", "triprize-http", perSecondOfCPU},
	{"100campaigns / http", "at least 0.8", "triprize-http-100campaigns", "triprize-http", ""},
	{"2workers / http", "at least 0.9", "triprize-http-2workers", "triprize-http", ""},
	{"2,000 users / 500", "at least 0.9", "2000-users", "triprize-http", ""},
	{"10,000 users: p95, ms", "at most 500", "10000-users", "", p95},
	{"10,000 users: api, MiB at most", "below 1,024", "10000-users", "", mostMiB + "api"},
	{"10,000 users: files of the api", "below 10,500", "10000-users", "", openFiles + "api"},
	{"storm rejections / http purchases", "at least 3", "sold-out-storm", "triprize-http", ""},
	{"http with webhooks / http", "at least 0.8", "webhooks", "triprize-http", ""},
	{"events delivered per second, afterwards", "at least 1,000", "webhooks", "", deliveredAfterwards},
	{"logged and traced / silent", "at least 0.97", "traced", "silent", ""},
	{"cpu of a purchase, logged and traced / silent", "at most 1.03", "traced", "silent", cpuOfEach},
	{"adjacent / random", "at least 0.5", "adjacent", "random", ""},
	{"first minute: lowest window / after ANALYZE", "at least 0.9", "first-minute", "", lowestWindow},
	{"http by wallet / documents-rr", "at least 60 in the end", "triprize-http-wallet", "documents-rr", ""},
	{"http by wallet / http external", "no target", "triprize-http-wallet", "triprize-http", ""},
	{"by wallet, beside cards / beside nothing", "at least 0.9", "wallet-beside-cards", "wallet-beside-nothing", ""},
	{"sold by card a second meanwhile", "about 20", "wallet-beside-cards", "", cardsPerSecond},
	{"transfers / one transaction each", "at least 2", "transfers", "transfers-alone", ""},
	{"hot wallet / one transaction each", "no target", "hot-wallet", "hot-wallet-alone", ""},
	{"idle median, ms", "at most 15", "idle-latency", "", median},
	{"half load: 202 p99, ms", "at most 50", "half-load", "", accepted99},
	{"half load: final p95, ms", "at most 150", "half-load", "", p95},
	{idleWorkerCPU, "below 1", "idle-fleet", "", idleWorkerCPU},
	{idleWorkerRequests, "below 20", "idle-fleet", "", idleWorkerRequests},
	{idleRedisCPU, "below 3", "idle-fleet", "", idleRedisCPU},
	{"replays / reads of a job", "no target", "replays", "read-job", ""},
	{"reads of a campaign / of a job", "at least 1.5", "read-campaign", "read-job", ""},
	{"cpu of a purchase, 1 M jobs / 1", "less than 1.3", "1M-jobs", "1-job", cpuOfEach},
	{"cpu of a purchase, 1,000 campaigns / 1", "less than 1.3", "1000-campaigns", "1-campaign", cpuOfEach},
	{"cpu of a purchase, 1,000 on sale / 1", "less than 1.3", "1000-campaigns-on-sale", "triprize-http", cpuOfEach},
	{"cpu of a purchase, 100,000 wallets / 256", "less than 1.3", "100k-wallets", "256-wallets", cpuOfEach},
	{"draw-1275: from the last payment to the result, p95, ms", "below 100", "draw-1275", "", p95},
	{"transition of a campaign: p95, ms", "below 5", "transition", "", p95},
	{"execution lock: average, ms", "0.5 to 2", "execution-lock", "", average},
	{"execution lock: p95, ms", "below 5", "execution-lock", "", p95},
	{"execution lock: p99, ms", "below 10", "execution-lock", "", p99},
	{"lock in Redis: average, ms", "documents: below 1", "lock", "", average},
	{"lock in three of them: average, ms", "documents: below 1", "lock-three", "", average},
	{"cancellations: p95, disturbed / quiet", "at most 4", "stranger/cancellations", "", disturbedP95},
	{"flooding-app: p95, disturbed / quiet", "at most 4", "stranger/flooding-app", "", disturbedP95},
	{"anonymous: p95, disturbed / quiet", "at most 1.5", "stranger/anonymous", "", disturbedP95},
	{"reads: p95, disturbed / quiet", "at most 1.5", "stranger/reads", "", disturbedP95},
	{"releases: p95, disturbed / quiet", "at most 2", "stranger/releases", "", disturbedP95},
	{"large-bodies: p95, disturbed / quiet", "at most 2", "stranger/large-bodies", "", disturbedP95},
	{"large-bodies: api, MiB at most", "below 250", "stranger/large-bodies", "", apiPeak},
	{"locked/campaign: p95, disturbed / quiet", "at most 2", "locked/campaign", "", disturbedP95},
	{"locked/campaign: messages, 5 s after", "at most 10", "locked/campaign", "", messagesAfter},
	{"locked/campaign: its jobs final, s", "at most 3", "locked/campaign", "", finalAfter},
	{"locked/1000-campaigns: p95, disturbed / quiet", "at most 2", "locked/1000-campaigns", "", disturbedP95},
	{"locked/1000-wallets: p95, disturbed / quiet", "at most 2", "locked/1000-wallets", "", disturbedP95},
}
