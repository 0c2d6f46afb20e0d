-- Exact arithmetic on whole numbers. Lua's numbers are doubles: whole numbers are exact below 2^53, products of a
-- limit and a window reach 2^98.
--
-- Sums, floor(a / b) and a % b need no help as long as their operands stay below 2^53: two different quotients a / b
-- are then further apart than a rounding error.

local EXACT_BELOW = 9007199254740992 -- 2^53
local LIMB = 33554432 -- 2^25: a number below 2^50 is two limbs, whose products stay below 2^50

-- floor(a * b / d) and the remainder. a, b, d and the quotient are whole and below 2^50, d at least 1.
local function mul_div(a, b, d)
  local product = a * b
  local quotient = math.floor(product / d)
  if product < EXACT_BELOW then
    return quotient, product - quotient * d
  end
  -- The two roundings above leave the quotient at most a few units off. Its remainder a * b - quotient * d is small
  -- and comes out exactly when the two products are subtracted limb by limb; it then says by how much to correct.
  local a_high, b_high = math.floor(a / LIMB), math.floor(b / LIMB)
  local d_high, q_high = math.floor(d / LIMB), math.floor(quotient / LIMB)
  local a_low, b_low = a - a_high * LIMB, b - b_high * LIMB
  local d_low, q_low = d - d_high * LIMB, quotient - q_high * LIMB
  local high = a_high * b_high - q_high * d_high
  local middle = (a_high * b_low + a_low * b_high) - (q_high * d_low + q_low * d_high)
  local low = a_low * b_low - q_low * d_low
  local rest = (high * LIMB + middle) * LIMB + low
  while rest < 0 do
    quotient, rest = quotient - 1, rest + d
  end
  while rest >= d do
    quotient, rest = quotient + 1, rest - d
  end
  return quotient, rest
end

-- ceil(a / b); a + b is below 2^53, b at least 1.
local function ceil_div(a, b)
  return math.floor((a + b - 1) / b)
end

-- The digits of a whole number. Whatever becomes text goes through here: Lua's own conversion keeps 14 digits only.
local function digits(number)
  return string.format('%.0f', number)
end
