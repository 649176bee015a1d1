package budget

const MaxBurst = maxBurst
