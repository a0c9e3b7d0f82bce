// What a proof shows at its level of trust, and what it does not show.

export function meaning(document) {
  const { beacon, witness } = document.rules;
  const shows = ["Rules and secret were fixed before the sale, if you saw the commitment then. The winners follow from them and from the list."];
  const open = [
    "Who bought. The operator may have bought as well.",
    "That no buyer was left out: that is for each buyer to see, with a proof of purchase.",
    "Who made this document. It is not signed, and once the secret is public anybody can write another one that holds. Compare its commitment with the one from before the sale, and the hash of its freeze record with the one that was shown before the draw.",
    "That the operator made only one record. If it showed you two for one campaign, it made two; after a restored backup that happens, too, and it owes an explanation.",
  ];
  if (!beacon) {
    shows.push("Nothing changed after the list was frozen.");
    open.unshift("That nobody steered the draw: whoever knew the secret (the operator did) and bought last, or chose the random values in the list, could have tried until the winners pleased.");
    return { trust: "operator", shows, open };
  }
  shows.push("The winners hang on a round of the beacon that was named in the freeze record. Nobody can choose a round, and nobody knows it before it is due, unless most of the beacon's members work together.");
  if (witness && document.witness.length > 0) {
    shows.push("Independent authorities say that the freeze record was there before the round was due.");
    open.unshift(
      "That the record was the only one: an operator with database and key could have had several timestamped, and kept the one that pleased.",
      "That every draw was published: an operator can withhold one, or go back to a backup and freeze again. Then there are two records.",
    );
  } else {
    open.unshift(
      "When the freeze record was made: nobody but the operator says so here" + (witness ? " (unwitnessed)" : "") +
        ". An operator with database and key could have made several after the round was known, and kept the one that pleased. Whoever saw the record before the round was due can compare its hash.",
      "That every draw was published: an operator can withhold one, or go back to a backup and freeze again. Then there are two records.",
    );
  }
  return { trust: "beacon", shows, open };
}
