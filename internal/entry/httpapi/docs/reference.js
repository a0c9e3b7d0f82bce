SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  showExtensions: true, // x-roles: the roles that may call an operation
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
