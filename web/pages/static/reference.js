// An operation is found by a word of its path, summary, id or tag; Swagger UI by itself finds tags only.
const find = () => ({
  fn: {
    opsFilter: (tagged, phrase) => {
      const words = phrase.toLowerCase().split(/\s+/).filter(Boolean);
      const matches = (operation, tag) => {
        const at = [tag, operation.get("path"), operation.get("method"), operation.getIn(["operation", "operationId"]), operation.getIn(["operation", "summary"])].join(" ").toLowerCase();
        return words.every((word) => at.includes(word));
      };
      return tagged.map((of, tag) => of.set("operations", of.get("operations").filter((operation) => matches(operation, tag)))).filter((of) => of.get("operations").size > 0);
    },
  },
});

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  plugins: [find],
  filter: true,
  deepLinking: true,
  showExtensions: true, // x-roles: the roles that may call an operation
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  onComplete: () => document.querySelector(".operation-filter-input")?.setAttribute("placeholder", "Find an operation by words of its path, summary or id"),
});
