package call

var IsOnlyHope = isOnlyHope
