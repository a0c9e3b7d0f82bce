// What a proof shows whose checks all hold, at its level of trust, and what it does not show.

import { quicknet } from "./beacon.js";

// named returns the timestamps of authorities (a Set) that the user trusts. A proof can name any
// others: also one that the operator made itself.
const named = (document, authorities) => document.stamps.filter(({ authority }) => authorities.has(authority));

// headline says in a few words how far a proof goes.
export function headline(document, { authorities }) {
  const promised = document.rules.witness?.length ?? 0;
  if (promised === 0) return "verified";
  if (document.stamps.length === 0) return "verified, unwitnessed";
  const witnesses = named(document, authorities).length;
  if (witnesses > 0) return `verified, witnessed by ${witnesses} of ${promised}`;
  return `verified, stamped only by ${document.stamps.length === 1 ? "an authority" : "authorities"} that the operator named`;
}

// meaning returns {shows, open}: sentences. commitment and freezeHash are what the user noted, or null.
export function meaning(document, { authorities, commitment, freezeHash }) {
  const shows = ["The winners follow from rules, secret and list."];
  const open = [
    "The names of the buyers. The operator may have bought as well.",
    "That no buyer was left out: that is for each buyer to see, with a proof of purchase.",
    "The author of this document. It is not signed, and once the secret is public anybody can write another one that holds.",
    "That the operator made only one record. If it showed you two for one campaign, it made two; after a restored backup that happens, too, and it owes an explanation.",
  ];
  if (commitment) shows.push("Nothing changed in rules and secret since you noted their commitment.");
  else open.unshift("That rules and secret were fixed before the sale. If you noted the commitment then, put it in above.");
  if (freezeHash) shows.push("Nothing changed after the list was frozen: you noted the hash of the freeze record.");
  else open.unshift("That nothing changed after the list was frozen. If you noted the hash of the freeze record before the draw, put it in above.");
  if (!document.rules.beacon) {
    open.unshift("That nobody steered the draw: the operator knew the secret. If it bought last, or chose the random values in the list, it could have tried until the winners pleased.");
    return { shows, open };
  }
  shows.push("The winners hang on a round of the beacon that was named in the freeze record. Nobody can choose a round, and nobody knows it before it is due, unless most of the beacon's members work together.");
  open.unshift("That every draw was published: an operator can withhold one, or go back to a backup and freeze again. Then there are two records.");
  if (document.beacon.chain_hash !== quicknet) open.unshift("That nobody knew the round: you named its chain, and the maker of a chain can know every round beforehand.");
  const { stamps } = document, witnesses = named(document, authorities);
  if (stamps.some(({ early }) => early)) open.unshift("Which clock is right: a timestamp is of more than a minute before the freeze record says that the list was frozen.");
  if (witnesses.length > 0) {
    shows.push(`${witnesses.length === 1 ? "An authority that you named says" : "Authorities that you named say"} that the freeze record was there before the round was due.`);
    open.unshift("That the record was the only one: an operator with database and key could have had several timestamped, and kept the one that pleased.");
  } else {
    open.unshift(whenMade(document.rules, stamps) + " The operator could have made several records after the round was known, and kept the one that pleased. The hash of the record tells, if you noted it before the round was due.");
  }
  if (stamps.length > witnesses.length && witnesses.length > 0) open.unshift(`Anything more by the other ${stamps.length - witnesses.length === 1 ? "timestamp: it is of an authority" : "timestamps: they are of authorities"} that only the operator named.`);
  return { shows, open };
}

function whenMade({ witness }, stamps) {
  if (stamps.length > 0) return `When the freeze record was made. It is stamped by ${stamps.length === 1 ? "an authority" : "authorities"} that only the operator named: it shows no more than the beacon alone.`;
  return `When the freeze record was made: nobody but the operator says so here${witness ? " (unwitnessed)" : ""}.`;
}
