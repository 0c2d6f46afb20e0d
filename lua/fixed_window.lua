-- Fixed window: one count per window, windows aligned to the Unix epoch and half open.
--
-- State: string of 21 bytes, '>I7I7I7'
--   last     effective time of the last charge, µs; it names the window
--   count    units used in that window, at most 999 999 999 999 999
--   offset   effective time less Redis' time, µs
-- Expires at the end of the window.

local function fixed_window()
  local function pack(limit)
    return struct.pack('>I7I7I7', limit.at, limit.count, limit.offset)
  end

  local function wait(limit)
    return limit.window - limit.at % limit.window
  end

  return {
    read = function(limit)
      local at, offset, used, window = limit.now, 0, 0, limit.window
      local value = read_packed(limit.key, 21)
      if value then
        local last, count, before = struct.unpack('>I7I7I7', value)
        local here, held = effective(at, last, before)
        if here - here % window == last - last % window then
          at, offset, used = here, held, count
          limit.stepped = held > before
        end
      end
      limit.at, limit.offset, limit.count = at, offset, used
      limit.remaining = math.max(0, limit.limit - used)
    end,

    wait = wait,

    charge = function(limit)
      limit.count = limit.count + limit.cost
      limit.remaining = limit.remaining - limit.cost
      write_packed(limit, pack(limit), wait(limit))
    end,

    hold = function(limit)
      hold_packed(limit, pack(limit))
    end,
  }
end
