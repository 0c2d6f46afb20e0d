-- Fixed window: one count per window, windows aligned to the Unix epoch and half open.
--
-- State: string of 21 bytes, '>I7I7I7'
--   last     effective time of the last charge, µs; it names the window
--   count    units used in that window, at most 999 999 999 999 999
--   offset   effective time less Redis' time, µs
-- Expires at the end of the window.

local fixed_window = {}

local function fixed_window_pack(limit)
  return struct.pack('>I7I7I7', limit.at, limit.count, limit.offset)
end

function fixed_window.read(limit)
  limit.at, limit.offset, limit.count = limit.now, 0, 0
  local value = read_packed(limit.key, 21)
  if value then
    local last, count, offset = struct.unpack('>I7I7I7', value)
    local at, held = effective(limit.now, last, offset)
    if at - at % limit.window == last - last % limit.window then
      limit.at, limit.offset, limit.count = at, held, count
      limit.stepped = held > offset
    end
  end
  limit.remaining = math.max(0, limit.limit - limit.count)
end

function fixed_window.wait(limit)
  return limit.window - limit.at % limit.window
end

function fixed_window.charge(limit)
  limit.count = limit.count + limit.cost
  limit.remaining = limit.remaining - limit.cost
  limit.life = limit.window - limit.at % limit.window
  write_packed(limit, fixed_window_pack(limit))
end

function fixed_window.hold(limit)
  hold_packed(limit, fixed_window_pack(limit))
end
