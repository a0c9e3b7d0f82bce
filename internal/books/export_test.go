package books

func init() { partSize = 7 } // so that days have parts
