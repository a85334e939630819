"""What programs write when they die: message forms by what they tell of. In the order tried: `order`."""
