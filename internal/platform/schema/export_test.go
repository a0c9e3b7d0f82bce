package schema

var LostBy = lostBy
