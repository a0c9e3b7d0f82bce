// What a proof shows whose checks all hold, at its level of trust, and what it does not show.

import { quicknet } from "./beacon.js";

// meaning returns {shows, open}: sentences. commitment and freezeHash are what the user noted, or null.
export function meaning(document, { commitment, freezeHash }) {
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
  open.unshift("When the freeze record was made: nobody but the operator says so here. The operator could have made several records after the round was known, and kept the one that pleased. The hash of the record tells, if you noted it before the round was due.");
  return { shows, open };
}
