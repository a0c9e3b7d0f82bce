// The documents' load test: 500 users buy one position after the other until the
// campaign is sold out. It checks every answer, and at the end that exactly what
// there was has been sold.
//
//   k6 run -e BASE_URL=… -e OPERATOR_KEY=… -e APP_KEY=… bench/k6/triprize.js
//
// -e BASE_LENGTH=50 is the campaign's (1,275 positions), -e USERS=500 the crowd's.
import http from 'k6/http';
import { check, fail, sleep } from 'k6';
import exec from 'k6/execution';
import { Counter, Trend } from 'k6/metrics';

const base = (__ENV.BASE_URL || 'http://127.0.0.1:8080') + '/v1';
const baseLength = Number(__ENV.BASE_LENGTH || 50);
const users = Number(__ENV.USERS || 500);

const sold = new Counter('triprize_sold');
const refused = new Counter('triprize_refused'); // sold-out: the end of the sale, not an error
const errors = new Counter('triprize_errors');
const duration = new Trend('triprize_purchase', true); // from the request to the final purchase

http.setResponseCallback(http.expectedStatuses(200, 201, 202));

export const options = {
  scenarios: {
    crowd: {
      executor: 'ramping-vus',
      startVUs: 0,
      stages: [
        { duration: '10s', target: users },
        { duration: '50s', target: users },
      ],
      gracefulRampDown: '30s',
    },
  },
  // Errors fail the run. How fast it is depends on the machine, and fails nothing.
  thresholds: {
    triprize_errors: ['count==0'],
    http_req_failed: ['rate==0'],
    checks: ['rate==1'],
  },
};

function headers(credential, key, more) {
  return { headers: Object.assign({ Authorization: `Bearer ${credential}`, 'Idempotency-Key': key, 'Content-Type': 'application/json' }, more) };
}

// setup makes the campaign and puts it on sale.
export function setup() {
  const run = `k6-${Date.now()}-${Math.random().toString(36).slice(2)}`;
  const layers = [];
  for (let layer = 1; layer <= baseLength; layer++) {
    layers.push({ layer, price: 100, prizes: [{ name: `Prize ${layer}`, count: 1 }] });
  }
  const made = http.post(`${base}/campaigns`, JSON.stringify({ name: run, base_length: baseLength, currency: 'JPY', layers }),
    headers(__ENV.OPERATOR_KEY, `${run}-create`));
  if (made.status !== 201) {
    fail(`the campaign was not made: ${made.status} ${made.body}`);
  }
  const campaign = made.json('id');
  const published = http.post(`${base}/campaigns/${campaign}/publish`, null, { headers: { Authorization: `Bearer ${__ENV.OPERATOR_KEY}`, 'Idempotency-Key': `${run}-publish` } });
  if (published.status !== 200) {
    fail(`the campaign was not published: ${published.status} ${published.body}`);
  }
  return { run, campaign, total: published.json('positions.total') };
}

let over = false; // for this user: the campaign is sold out

export default function ({ run, campaign }) {
  if (over) {
    sleep(1);
    return;
  }
  const user = `k6-${exec.vu.idInTest}`;
  const body = JSON.stringify({ user_id: user, selection: { quantity: 1 }, payment: { method: 'external', reference: run } });
  const params = headers(__ENV.APP_KEY, `${run}-${user}-${exec.vu.iterationInScenario}`, { Prefer: 'wait=30' });
  const begin = Date.now();
  let answer = http.post(`${base}/campaigns/${campaign}/purchases`, body, params);
  let job = answer.status < 300 ? answer.json() : null;
  while (job && job.state === 'queued') { // the wait was over first
    answer = http.get(`${base}/jobs/${job.id}`, { headers: { Authorization: `Bearer ${__ENV.APP_KEY}`, Prefer: 'wait=30' } });
    job = answer.status < 300 ? answer.json() : null;
  }
  duration.add(Date.now() - begin);
  const problem = answer.status === 409 ? answer.json() : job !== null && job.state === 'failed' ? job.problem : null; // of the request, or of its job
  const soldOut = problem !== null && problem.code === 'sold-out';
  const bought = job !== null && job.state === 'succeeded';
  const fine = check(answer, {
    'it is sold, or sold out': () => bought || soldOut,
    'one position for its price': () => !bought || (job.result.positions.length === 1 && job.result.amount === 100),
  });
  if (bought) {
    sold.add(1);
  } else if (soldOut) {
    refused.add(1);
    over = true;
  }
  if (!fine) {
    errors.add(1);
    console.error(`${answer.status} ${answer.body}`);
  }
  sleep(0.2); // a user sends at most 10 requests a second (limits.user_rate)
}

// teardown looks at what is left behind.
export function teardown({ campaign, total }) {
  const read = () => http.get(`${base}/campaigns/${campaign}`, { headers: { Authorization: `Bearer ${__ENV.APP_KEY}` } });
  let now = read();
  for (let i = 0; i < 60 && now.json('positions.sold') === total && now.json('state') !== 'completed'; i++) {
    sleep(1); // the draw follows by itself
    now = read();
  }
  const board = http.get(`${base}/campaigns/${campaign}/positions`, { headers: { Authorization: `Bearer ${__ENV.APP_KEY}` } });
  const counted = board.json('positions').filter((p) => p.state === 'sold').length;
  const fine = check(now, {
    'every position is sold, once': (r) => r.json('positions.sold') === total && counted === total,
    'and the prizes are drawn': (r) => r.json('state') === 'completed',
  });
  if (!fine) {
    fail(`of ${total} positions ${now.json('positions.sold')} are sold; the campaign is ${now.json('state')}`);
  }
}
