package upkeep

// Walks are the walks of an auditor.
var Walks = walks
